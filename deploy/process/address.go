package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// Ports are below those that systems give to clients: nobody takes a broker's while it is away between two starts.
const (
	firstPort = 20_000
	ports     = 9_973 // a prime: the section visits all of them
)

// port is where the last one was found. Packages of tests run side by side: by the golden section, neighbours begin far apart.
var port atomic.Int64

func init() { port.Store(int64(os.Getpid()) * (ports * 618 / 1000)) }

var errNoPort = errors.New("no free port")

// FreeAddress is an address on loopback where nobody listens now.
func FreeAddress() (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+port.Add(1)%ports)
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err == nil {
			return address, l.Close()
		}
	}
	return "", errNoPort
}

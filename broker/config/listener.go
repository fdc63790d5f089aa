package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Listener is an address that the broker listens on or tells its clients.
type Listener struct {
	Name     string // PLAINTEXT in PLAINTEXT://host:9092
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Host     string // "": every address of the machine, or, where it is told to clients, the machine's name
	Port     int    // 0: any free port
}

// Address is host:port.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// String is the form of the settings: NAME://host:port.
func (l Listener) String() string { return l.Name + "://" + l.Address() }

// parseListener reads NAME://host:port; protocols maps names to security protocols.
func parseListener(setting, text string, protocols map[string]string) (Listener, error) {
	name, address, ok := strings.Cut(text, "://")
	if !ok {
		return Listener{}, fmt.Errorf("%s: %q is not NAME://host:port", setting, text)
	}
	name = strings.ToUpper(name)
	protocol, ok := protocols[name]
	if !ok {
		return Listener{}, fmt.Errorf("%s: listener.security.protocol.map has no protocol for %s", setting, name)
	}
	host, port, err := parseAddress(setting, address)
	return Listener{Name: name, Protocol: protocol, Host: host, Port: port}, err
}

func parseAddress(setting, text string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %q is not host:port", setting, text)
	}
	port, err = strconv.Atoi(digits)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%s: %q is not a port", setting, digits)
	}
	return host, port, nil
}

// parsePairs reads a:1,b:2. The last colon counts, so that names may be IPv6 addresses.
func parsePairs(setting, text string) (map[string]string, error) {
	pairs := make(map[string]string)
	for _, member := range SplitList(text) {
		i := strings.LastIndexByte(member, ':')
		if i < 0 {
			return nil, fmt.Errorf("%s: %q is not name:value", setting, member)
		}
		pairs[strings.TrimSpace(member[:i])] = strings.TrimSpace(member[i+1:])
	}
	return pairs, nil
}

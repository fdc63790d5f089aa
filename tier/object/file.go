package object

// Filed is a Body that lies in a file, from where the kernel can send it without a copy on the way.
type Filed interface {
	Body
	// File is the descriptor of a file, which stays open until the put has returned, and where in it the body begins; ok is false
	// where there is none, and the bytes are read by ReadAt.
	File() (fd uintptr, offset int64, ok bool)
}

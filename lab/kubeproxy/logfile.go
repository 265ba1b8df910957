package kubeproxy

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// logFile holds what a process writes. It is a file in memory and not a pipe, so that whoever has seen the process do
// something, such as answer a request, can read all that it logged before.
type logFile struct {
	mu   sync.Mutex
	file *os.File // nil once closed
	text string   // of the closed file
}

func newLogFile(name string) (*logFile, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a log file in memory: %w", err)
	}
	return &logFile{file: os.NewFile(uintptr(fd), name)}, nil
}

// from returns the text from an offset on. Reading does not move the offset that the process writes at.
func (l *logFile) from(offset int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return l.text[min(offset, len(l.text)):]
	}
	info, err := l.file.Stat()
	if err != nil || int(info.Size()) <= offset {
		return ""
	}
	b := make([]byte, int(info.Size())-offset)
	n, _ := l.file.ReadAt(b, int64(offset))
	return string(b[:n])
}

// close gives the file back and keeps its text.
func (l *logFile) close() {
	text := l.from(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.text = text
		l.file.Close()
		l.file = nil
	}
}

package workload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// Ack is a line of a pod's log: what the pod fsynced, and when the container
// runtime read that.
type Ack struct {
	At   time.Time
	Line string
}

// Log is the log of a pod's container as its host keeps it. It is held open
// and so can be read when the kubelet has removed it.
type Log struct{ file *os.File }

// logPath is where the kubelet of the pod's host keeps the log of its first
// container, seen from outside of the machine.
func logPath(p *corev1.Pod) string {
	return filepath.Join(layout.MachineDir(p.Spec.NodeName), "var-log", "pods",
		fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID), p.Spec.Containers[0].Name, "0.log")
}

func openLog(p *corev1.Pod) (*Log, error) {
	file, err := os.Open(logPath(p))
	if err != nil {
		return nil, fmt.Errorf("open the log of pod %s: %w", p.Name, err)
	}
	return &Log{file}, nil
}

// Acks reads the whole log.
func (l *Log) Acks() ([]Ack, error) {
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the log of a pod: %w", err)
	}
	out, err := parseLog(l.file)
	if err != nil {
		return nil, fmt.Errorf("read the log of a pod, %s: %w", l.file.Name(), err)
	}
	return out, nil
}

// Close gives the file back.
func (l *Log) Close() { _ = l.file.Close() }

// parseLog reads the lines of a log in the format of the CRI: time, stream,
// F for a full line, text. A last line without its newline is still being
// written and is left.
func parseLog(in io.Reader) ([]Ack, error) {
	var out []Ack
	for lines := bufio.NewReader(in); ; {
		text, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		word := strings.SplitN(strings.TrimSuffix(text, "\n"), " ", 4)
		if len(word) != 4 || word[2] != "F" {
			return nil, fmt.Errorf("%q is no full line of a container's log", text)
		}
		at, err := time.Parse(time.RFC3339Nano, word[0])
		if err != nil {
			return nil, fmt.Errorf("%q is no line of a container's log: %w", text, err)
		}
		if word[1] == "stdout" {
			out = append(out, Ack{At: at, Line: word[3]})
		}
	}
}

// FirstAck waits for a pod's first line.
func FirstAck(ctx context.Context, p *corev1.Pod) (*Log, Ack, error) {
	var log *Log
	var first Ack
	err := kit.Until(ctx, "pod "+p.Name+" on "+p.Spec.NodeName+" has written", func(context.Context) (bool, error) {
		var err error
		if log == nil {
			if log, err = openLog(p); errors.Is(err, os.ErrNotExist) {
				log = nil
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
		acks, err := log.Acks()
		if err != nil || len(acks) == 0 {
			return false, err
		}
		first = acks[0]
		return true, nil
	})
	if err != nil && log != nil {
		log.Close()
	}
	return log, first, err
}

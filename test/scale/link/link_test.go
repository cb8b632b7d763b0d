package link

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return listener.Addr().String()
}

func start(t *testing.T) *Link {
	t.Helper()
	l, err := Start(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func dial(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a line and returns the answer.
func ask(c net.Conn, line string) (string, error) {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func TestCarries(t *testing.T) {
	c := dial(t, start(t))
	for _, line := range []string{"one", "two"} {
		if got, err := ask(c, line); err != nil || got != line+"\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestCut: what is open ends, what comes later is carried.
func TestCut(t *testing.T) {
	l := start(t)
	first, second := dial(t, l), dial(t, l)
	for _, c := range []net.Conn{first, second} {
		if _, err := ask(c, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Cut(); n != 2 {
		t.Errorf("%d connections were cut", n)
	}
	for _, c := range []net.Conn{first, second} {
		if got, err := ask(c, "x"); err == nil {
			t.Errorf("a connection that was cut answers %q", got)
		}
	}
	if _, err := ask(dial(t, l), "x"); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

// TestDelay: each direction takes so long, and no longer for what comes at once.
func TestDelay(t *testing.T) {
	l := start(t)
	c := dial(t, l)
	const delay = 50 * time.Millisecond
	l.Delay(delay)
	begin := time.Now()
	if _, err := ask(c, "x"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 2*delay {
		t.Errorf("an answer after %s", took)
	}
}

// TestNothingListens: a connection to what is not there ends.
func TestNothingListens(t *testing.T) {
	l, err := Start(t.Context(), "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := dial(t, l).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read with %v", err)
	}
}

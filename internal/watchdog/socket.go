package watchdog

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// The commands of a watchdog at a unix socket, a line each. The answer is a line:
// the timeout in milliseconds for CommandTimeout, which is asked for in
// milliseconds, and AnswerOK for the others.
const (
	CommandTimeout = "timeout"
	CommandFeed    = "keepalive"
	CommandDisarm  = "disarm"
	AnswerOK       = "ok"
)

// answerTime bounds the wait for the stand-in.
const answerTime = 5 * time.Second

// remote is a watchdog at a unix socket, as its client sees it.
type remote struct {
	conn    net.Conn
	answers *bufio.Reader
	timeout time.Duration
}

func dial(path string, timeout time.Duration) (*remote, error) {
	conn, err := net.DialTimeout("unix", path, answerTime)
	if err != nil {
		return nil, fmt.Errorf("open the watchdog's stand-in: %w", err)
	}
	r := &remote{conn: conn, answers: bufio.NewReader(conn)}
	answer, err := r.say(fmt.Sprintf("%s %d", CommandTimeout, timeout.Milliseconds()))
	millis, wrong := strconv.Atoi(answer)
	if err = errors.Join(err, wrong); err != nil || millis <= 0 {
		return nil, errors.Join(fmt.Errorf("find out the timeout of the watchdog's stand-in %s (%q): %w", path, answer, err), r.conn.Close())
	}
	r.timeout = time.Duration(millis) * time.Millisecond
	return r, nil
}

func (r *remote) say(words string) (string, error) {
	if err := r.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return "", fmt.Errorf("talk to the watchdog's stand-in: %w", err)
	}
	if _, err := fmt.Fprintln(r.conn, words); err != nil {
		return "", fmt.Errorf("tell the watchdog's stand-in %q: %w", words, err)
	}
	answer, err := r.answers.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("hear the answer of the watchdog's stand-in to %q: %w", words, err)
	}
	return strings.TrimSpace(answer), nil
}

func (r *remote) Timeout() time.Duration { return r.timeout }

func (r *remote) Feed() error {
	answer, err := r.say(CommandFeed)
	if err == nil && answer != AnswerOK {
		err = fmt.Errorf("feed the watchdog's stand-in: it says %q", answer)
	}
	return err
}

func (r *remote) Close(disarm bool) error {
	var err error
	if disarm {
		_, err = r.say(CommandDisarm)
	}
	return errors.Join(err, r.conn.Close())
}

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/moor-storage/moor/internal/freeport"
)

// endTimeout is how long a program may take to end after SIGTERM.
const endTimeout = 15 * time.Second

// tailLines is how much of a log is shown of a program that ended by itself.
const tailLines = 10

// Program is a program that can be started, again and again.
type Program struct {
	// Name is its file's, Account that of its account. Replica tells replicas of one
	// program apart.
	Name, Account, Replica string
	// Args are its flags, but those of its metrics and its health, which Start adds.
	Args []string
	// HealthIsMetrics: it has one server for both.
	HealthIsMetrics bool
	// Reconciles is how many passes it makes at least before it has seen all: one for
	// each object that it is about.
	Reconciles float64

	log             string
	cmd             *exec.Cmd
	ended           chan struct{}
	began           time.Time
	metrics, health string
}

// Start starts the program from a directory of programs; what it says goes to
// <logs>/<name><replica>.log.
func (p *Program) Start(ctx context.Context, bin, logs string) (err error) {
	if p.metrics, err = freeport.Address(); err != nil {
		return err
	}
	args := append(slices.Clone(p.Args), "--metrics-bind-address="+p.metrics, "--insecure-metrics")
	if p.health = p.metrics; !p.HealthIsMetrics {
		if p.health, err = freeport.Address(); err != nil {
			return err
		}
		args = append(args, "--health-probe-bind-address="+p.health)
	}
	profiles, err := freeport.Address()
	if err != nil {
		return err
	}
	args = append(args, "--pprof-bind-address="+profiles)
	p.log = filepath.Join(logs, p.Name+p.Replica+".log")
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close()
	fmt.Fprintln(log, "profiles: http://"+profiles+"/debug/pprof")
	p.cmd = exec.CommandContext(ctx, filepath.Join(bin, p.Name), args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// It ends with this process, however that ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { _ = cmd.Wait(); close(ended) }(p.cmd, p.ended)
	return nil
}

// Another is a replica of the program that does not run yet.
func (p *Program) Another() *Program {
	return &Program{
		Name: p.Name, Account: p.Account, Replica: p.Replica + "-replica", Args: p.Args,
		HealthIsMetrics: p.HealthIsMetrics, Reconciles: p.Reconciles,
	}
}

// Began is when the program was started.
func (p *Program) Began() time.Time { return p.began }

// Kill ends the program at once, as a machine that loses its power does.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	p.cmd = nil
}

// Stop ends the program, politely at first. One that does not run is left alone.
func (p *Program) Stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	p.cmd = nil
}

// PID is the number of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Running is an error if the program has ended by itself, with the last that it said.
func (p *Program) Running() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself; the end of its log:\n%s", p.Name, tail(p.log))
	default:
		return nil
	}
}

// tail is the last lines of a log, as far as it can be read.
func tail(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n")))
}

// Ready reports whether its health says so.
func (p *Program) Ready(ctx context.Context) bool {
	_, err := get(ctx, "http://"+p.health+"/readyz")
	return err == nil
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode != http.StatusOK {
		err = errors.New(got.Status)
	}
	return string(text), err
}

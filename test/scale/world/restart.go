package world

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/devcluster/procs"
)

const (
	// stopTimeout is how long an API server may take to end, startTimeout until it is
	// ready again.
	stopTimeout  = 20 * time.Second
	startTimeout = 2 * time.Minute
	// lookEvery is how often it is looked whether it is.
	lookEvery = 50 * time.Millisecond
)

// server is an API server that was started anew.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// RestartAPIServer kills the API server of a cluster, starts it again with the same
// flags on the same etcd, and returns when it is ready.
func (c *Clusters) RestartAPIServer(ctx context.Context, cluster string) error {
	pids, err := c.Processes()
	if err != nil {
		return err
	}
	process, err := procs.Identify(pids["kube-apiserver-"+cluster])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process.PID))
	if err != nil {
		return fmt.Errorf("read the flags of the API server: %w", err)
	}
	var argv []string
	for _, arg := range bytes.Split(bytes.TrimRight(text, "\x00"), []byte{0}) {
		argv = append(argv, string(arg))
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	for process.Alive() {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	fresh := &server{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	// It ends with this process, however that ends.
	fresh.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	fresh.cmd.Env = append(os.Environ(), c.settings...)
	if err := fresh.cmd.Start(); err != nil {
		return fmt.Errorf("start the API server again: %w", err)
	}
	go func() { _ = fresh.cmd.Wait(); close(fresh.ended) }()
	c.restarted = append(c.restarted, fresh)
	return c.awaitReady(ctx, cluster, fresh)
}

// awaitReady returns when an API server says that it is ready.
func (c *Clusters) awaitReady(ctx context.Context, cluster string, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	config := c.HostConfig
	if cluster == apiserver.DPU {
		config = c.DPUConfig
	}
	once, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("ask the API server whether it is ready: %w", err)
	}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.Address(cluster)+"/readyz", http.NoBody)
		if err != nil {
			return fmt.Errorf("ask the API server whether it is ready: %w", err)
		}
		if got, err := once.Do(request); err == nil {
			got.Body.Close()
			if got.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the API server of the %s cluster ended when it was started again", cluster)
		default:
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait until the API server of the %s cluster is ready again: %w", cluster, err)
		}
	}
}

// pause lets a moment pass.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lookEvery):
		return nil
	}
}

// Stop stops the API servers, also those that were started anew.
func (c *Clusters) Stop() {
	for _, s := range c.restarted {
		s.stop()
	}
	c.Clusters.Stop()
}

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// journal is the file that the writers append to.
const journal = "/data/journal"

// appendLines appends a line, and says it once the medium has acknowledged it,
// again and again. A line that fails ends it.
const appendLines = `i=0; while echo $TAG-$i | dd of=` + journal + ` oflag=append conv=notrunc,fsync 2>/dev/null; do echo $TAG-$i; i=$((i+1)); sleep 0.1; done`

// writer writes in a container until it fails. No API server is in its way: it
// is started in the machine of the pod, and dies or stands still with it.
type writer struct {
	cmd                  *exec.Cmd
	node, container, tag string
	done                 chan struct{}

	mu    sync.Mutex
	lines []string
	// pause is the longest time from one line to the next.
	pause time.Duration
}

// write starts a writer in a pod, and returns once it has written. Each one
// begins its lines with another tag. The script is appendLines, or what does the like.
func write(ctx context.Context, pod *corev1.Pod, tag, script string) *writer {
	GinkgoHelper()
	w := &writer{node: pod.Spec.NodeName, tag: tag, done: make(chan struct{})}
	w.container = strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	var err error
	w.cmd, err = bed.Command(w.node, nil, "ctr", "-n", "k8s.io", "tasks", "exec", "--exec-id", tag, w.container,
		"sh", "-c", fmt.Sprintf("TAG=%s; %s", tag, script))
	Expect(err).NotTo(HaveOccurred())
	out, err := w.cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	Expect(w.cmd.Start()).To(Succeed())
	go w.listen(out)
	DeferCleanup(w.stop)
	w.more(ctx)
	return w
}

func (w *writer) listen(out io.Reader) {
	defer close(w.done)
	last := time.Now()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		w.mu.Lock()
		if now := time.Now(); len(w.lines) > 0 {
			w.pause, last = max(w.pause, now.Sub(last)), now
		} else {
			last = now
		}
		w.lines = append(w.lines, lines.Text())
		w.mu.Unlock()
	}
	_ = w.cmd.Wait()
}

// acknowledged are the lines so far.
func (w *writer) acknowledged() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines)
}

// longest is the longest time from one acknowledged line to the next, so far.
func (w *writer) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pause
}

func (w *writer) count() int { return len(w.acknowledged()) }

// more waits until further lines are acknowledged.
func (w *writer) more(ctx context.Context) {
	GinkgoHelper()
	Eventually(w.count).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">", w.count()+2), "the pod writes")
}

// ends waits until a line has failed.
func (w *writer) ends(ctx context.Context) {
	GinkgoHelper()
	Eventually(w.done).WithContext(ctx).WithTimeout(patience).Should(BeClosed(), "the pod can no longer write")
}

// stop ends the writer, if it still runs; what it has said is complete then.
func (w *writer) stop(ctx context.Context) {
	_, _ = bed.Exec(ctx, w.node, "ctr", "-n", "k8s.io", "tasks", "kill", "--exec-id", w.tag, "-s", "SIGKILL", w.container)
	select {
	case <-w.done:
		return
	case <-time.After(calm):
	}
	_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
	<-w.done
}

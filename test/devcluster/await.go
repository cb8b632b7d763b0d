package devcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	// tryEvery is how often something without a watch is tried again.
	tryEvery = 50 * time.Millisecond
	// lookEvery is how often the processes are looked at during a watch.
	lookEvery = time.Second
)

// await tries until it succeeds. It gives up after readyTimeout, or as soon as
// one of the processes it depends on has ended, and then shows their logs.
func (c *Cluster) await(ctx context.Context, what string, processes []string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var last error
	err := poll(ctx, tryEvery, func(ctx context.Context) (bool, error) {
		if err := c.allRun(processes); err != nil {
			return false, err
		}
		err := try(ctx)
		if ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return nil
	}
	return c.Explain(fmt.Errorf("wait for %s: %w", what, errors.Join(err, last)), processes...)
}

func (c *Cluster) allRun(processes []string) error {
	for _, name := range processes {
		if !c.Running(name) {
			return fmt.Errorf("process %s has ended", name)
		}
	}
	return nil
}

// Explain adds the ends of the logs of processes to an error.
func (c *Cluster) Explain(err error, processes ...string) error {
	var logs strings.Builder
	for _, name := range processes {
		logs.WriteString("\n" + tail(c.Log(name), 20))
	}
	return fmt.Errorf("%w%s", err, logs.String())
}

// awaitAPI waits until the API server says that it is ready.
func (c *Cluster) awaitAPI(ctx context.Context, p plane) error {
	client, err := c.client(p.name)
	if err != nil {
		return err
	}
	return c.await(ctx, "API server of the "+p.name+" cluster", []string{EtcdProcess, p.apiserver()}, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// awaitServiceAccount waits for the account without which no pod can be made
// in the default namespace.
func (c *Cluster) awaitServiceAccount(ctx context.Context, p plane) error {
	client, err := c.client(p.name)
	if err != nil {
		return err
	}
	return c.await(ctx, "default ServiceAccount of the "+p.name+" cluster", []string{p.apiserver(), p.controllerManager()}, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// awaitNodes watches until every node of a cluster that has a kubelet is Ready.
func (c *Cluster) awaitNodes(ctx context.Context, p plane) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client, err := c.client(p.name)
	if err != nil {
		return err
	}
	var waiting []string
	for _, b := range p.kubelets {
		waiting = append(waiting, b.name)
	}
	for ctx.Err() == nil && len(waiting) > 0 {
		if waiting, err = c.watchNodes(ctx, client, waiting); err != nil {
			break
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	processes := []string{p.apiserver()}
	for _, name := range waiting {
		processes = append(processes, kubeletName(name))
	}
	return c.Explain(fmt.Errorf("wait for nodes %v of the %s cluster to be Ready: %w", waiting, p.name, errors.Join(err, ctx.Err())), processes...)
}

// watchNodes returns the nodes still waited for when the watch ended or a look
// at the processes is due. The error is a process that has ended: an API error
// only means to list again.
func (c *Cluster) watchNodes(ctx context.Context, client kubernetes.Interface, waiting []string) ([]string, error) {
	for _, name := range waiting {
		if err := c.allRun([]string{kubeletName(name), containerdName(name)}); err != nil {
			return waiting, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		<-ctx.Done() // the API server is busy: again at the next look
		return waiting, nil
	}
	for i := range list.Items {
		waiting = withoutReady(waiting, &list.Items[i])
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	events, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		<-ctx.Done()
		return waiting, nil
	}
	defer events.Stop()
	return drain(ctx, events, waiting), nil
}

func drain(ctx context.Context, events watch.Interface, waiting []string) []string {
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return waiting
		case event, ok := <-events.ResultChan():
			if !ok {
				return waiting
			}
			if node, ok := event.Object.(*corev1.Node); ok {
				waiting = withoutReady(waiting, node)
			}
		}
	}
	return waiting
}

func withoutReady(waiting []string, node *corev1.Node) []string {
	if !nodeReady(node) {
		return waiting
	}
	return slices.DeleteFunc(slices.Clone(waiting), func(name string) bool { return name == node.Name })
}

// nodeReady also wants the taints of a new node gone: no pod lands before.
func nodeReady(node *corev1.Node) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

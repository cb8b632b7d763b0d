package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// watcher notices when a pod that stages writes /pav/ready. It tells of the pod; what is there is read
// by the one who is told.
type watcher struct {
	root   *pavdir.Root
	files  *fsnotify.Watcher
	events chan event.GenericEvent

	mu sync.Mutex
	// pods that are followed, by their directories.
	pods map[string]types.NamespacedName
}

func newWatcher(root *pavdir.Root) (*watcher, error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the directories of helper pods (is fs.inotify.max_user_instances used up?): %w", err)
	}
	return &watcher{root: root, files: files, events: make(chan event.GenericEvent), pods: map[string]types.NamespacedName{}}, nil
}

// Start tells of pods until ctx ends.
func (w *watcher) Start(ctx context.Context) error {
	defer w.files.Close()
	log := ctrl.LoggerFrom(ctx).WithName("ready")
	// The directory of a pod that is followed before it has begun is seen here when it is made.
	err := os.MkdirAll(w.root.Path(""), 0o755)
	if err == nil {
		err = w.files.Add(w.root.Path(""))
	}
	if err != nil {
		log.Error(err, "watch the directories of helper pods: what happens there is only seen from time to time")
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-w.files.Events:
			if !open {
				return errors.New("watch the directories of helper pods: the watch has ended")
			}
			if pod, is := w.about(e); is {
				w.tell(ctx, pod)
			}
		case err := <-w.files.Errors:
			// Mostly an overflow: all are looked at.
			log.V(1).Info("watch the directories of helper pods", "reason", fmt.Sprint(err))
			for _, pod := range w.all() {
				w.tell(ctx, pod)
			}
		}
	}
}

// tell has a pod looked at.
func (w *watcher) tell(ctx context.Context, pod types.NamespacedName) {
	select {
	case w.events <- event.GenericEvent{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}}:
	case <-ctx.Done():
	}
}

// about is the pod that an event concerns: /pav/ready was made, or its directory. A pod can make other
// files without end.
func (w *watcher) about(e fsnotify.Event) (types.NamespacedName, bool) {
	if !e.Has(fsnotify.Create) {
		return types.NamespacedName{}, false
	}
	directory, file := filepath.Dir(e.Name), filepath.Base(e.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if filepath.Clean(directory) == w.root.Path("") {
		pod, is := w.pods[file]
		return pod, is
	}
	pod, is := w.pods[filepath.Base(directory)]
	return pod, is && file == pods.FileReady
}

func (w *watcher) all() []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []types.NamespacedName
	for _, pod := range w.pods {
		out = append(out, pod)
	}
	return out
}

// follow watches the directory of a pod, if it is there. The caller looks for the file after that, so
// none is missed.
func (w *watcher) follow(directory string, pod types.NamespacedName) {
	if pavdir.CheckName(directory) != nil {
		return
	}
	w.mu.Lock()
	w.pods[directory] = pod
	w.mu.Unlock()
	// One that is not there yet, or cannot be watched, is looked at from time to time.
	_ = w.files.Add(w.root.Path(directory))
}

// forget ends follow.
func (w *watcher) forget(pod types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for directory, of := range w.pods {
		if of == pod {
			delete(w.pods, directory)
			_ = w.files.Remove(w.root.Path(directory)) // it may be gone
		}
	}
}

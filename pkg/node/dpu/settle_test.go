package dpu

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// TestSettle: the status of a new attachment is not written while it goes its
// normal way.
func TestSettle(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		age  time.Duration
		// said is what the status says, message what the pass waits for.
		said, message string
		made          bool
		retry         time.Duration
		want          string
		wantRetry     time.Duration
	}{
		{name: "nothing to say"},
		{name: "new, waits", age: time.Second, message: "waits", wantRetry: kube.StatusGrace - time.Second},
		{name: "new, looks again sooner", age: time.Second, message: "waits", retry: 10 * time.Millisecond, wantRetry: 10 * time.Millisecond},
		{name: "new, looks again later", age: time.Second, message: "waits", retry: time.Minute, wantRetry: kube.StatusGrace - time.Second},
		{name: "by a clock that is ahead", age: -time.Hour, message: "waits", wantRetry: kube.StatusGrace},
		{name: "old", age: kube.StatusGrace, message: "waits", want: "waits"},
		{name: "said already", age: time.Second, said: "waits", message: "waits", want: "waits"},
		{name: "a device was made", age: time.Second, message: "device is made", made: true, want: "device is made"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-c.age))}}
			a.Status.Message = c.said
			p := newPass(a)
			var err error
			if c.message != "" {
				err = p.wait(c.retry, "%s", c.message)
			}
			if c.made {
				p.dpu.DeviceName = "bdev"
			}
			message, retry, failure := p.settle(err, now)
			if message != c.want || retry != c.wantRetry || failure != nil {
				t.Errorf("says %q, looks again after %s, %v; want %q, %s", message, retry, failure, c.want, c.wantRetry)
			}
		})
	}
}

// waits reports whether a phase has ended the pass with a wait.
func waits(err error) bool {
	var w *kube.Waiting
	return errors.As(err, &w)
}

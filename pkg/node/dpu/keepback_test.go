package dpu

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// A new attachment is not written about while it goes its normal way.
func TestKeepBack(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		age  time.Duration
		// said is what the status says, words what the pass has to say.
		said, words string
		made        bool
		again       time.Duration
		wantWords   string
		wantAgain   time.Duration
	}{
		{name: "nothing to say"},
		{name: "new, waits", age: time.Second, words: "waits", wantAgain: grace - time.Second},
		{name: "new, looks again sooner", age: time.Second, words: "waits", again: 10 * time.Millisecond, wantAgain: 10 * time.Millisecond},
		{name: "new, looks again later", age: time.Second, words: "waits", again: time.Minute, wantAgain: grace - time.Second},
		{name: "by a clock that is ahead", age: -time.Hour, words: "waits", wantAgain: grace},
		{name: "old", age: grace, words: "waits", wantWords: "waits"},
		{name: "said already", age: time.Second, said: "waits", words: "waits", wantWords: "waits"},
		{name: "a device was made", age: time.Second, words: "device is made", made: true, wantWords: "device is made"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-c.age))}}
			a.Status.Message = c.said
			p := newPass(a)
			p.message, p.again = c.words, c.again
			if c.made {
				p.dpu.DeviceName = "bdev"
			}
			p.keepBack(now)
			if p.message != c.wantWords || p.again != c.wantAgain {
				t.Errorf("says %q, looks again after %s; want %q, %s", p.message, p.again, c.wantWords, c.wantAgain)
			}
		})
	}
}

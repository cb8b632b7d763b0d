package helper

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// firstPause and lastPause bound how long it takes until a pod that has failed is tried again; they are those
// of a claim that could not be provisioned.
const firstPause, lastPause = 5 * time.Second, 5 * time.Minute

// Asked reports whether a person asks for another try, by AnnotationRetry.
func Asked(o client.Object, t moorv1alpha1.HelperTries) bool {
	value := o.GetAnnotations()[moorv1alpha1.AnnotationRetry]
	return value != "" && value != t.Retried
}

// Due is how long to wait until a pod that has failed is tried again: not at all if a person asks for it.
func Due(o client.Object, t moorv1alpha1.HelperTries, now time.Time) time.Duration {
	if Asked(o, t) || t.LastFailure == nil {
		return 0
	}
	doubled := min(max(int(t.Failures)-1, 0), 6) // 5 s, six times, is above lastPause
	pause := min(firstPause<<doubled, lastPause)
	return max(0, t.LastFailure.Add(pause).Sub(now))
}

// Next are the tries once another has begun. Those of before a person asked do not count any more.
func Next(o client.Object, t moorv1alpha1.HelperTries) moorv1alpha1.HelperTries {
	if Asked(o, t) {
		return moorv1alpha1.HelperTries{Retried: o.GetAnnotations()[moorv1alpha1.AnnotationRetry]}
	}
	return t
}

// FailedAgain are the tries once one more has failed.
func FailedAgain(t moorv1alpha1.HelperTries, now time.Time) moorv1alpha1.HelperTries {
	at := metav1.NewTime(now.Truncate(time.Second))
	t.Failures, t.LastFailure = t.Failures+1, &at
	return t
}

// TryName is the name of a pod with what tells the tries of it apart, so that none is taken for another.
func TryName(name string, t moorv1alpha1.HelperTries) string {
	if t.Retried != "" {
		name += "-" + Short(t.Retried)
	}
	if t.Failures > 0 {
		name += fmt.Sprintf("-%d", t.Failures)
	}
	return name
}

// AndAgain are the words of a failure, and that it is tried again; kind and name are of the object that says it.
func AndAgain(words, kind, name string) string {
	return fmt.Sprintf("%s. It is tried again by itself, later and later, and at once by: kubectl annotate %s %s --overwrite %s=$(date +%%s)", words, kind, name, moorv1alpha1.AnnotationRetry)
}

// leftover stands between why something has failed, and why what it has left could not be undone.
const leftover = "; what it has left could not be undone: "

// Left are the words of a failure that could not be undone either.
func Left(why, words string) string { return why + leftover + words }

// Why is why something has failed, without what became of the tries to undo it: another is under way.
func Why(message string) string {
	why, _, _ := strings.Cut(message, leftover)
	return why
}

package pavdir

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// How many characters of each file count, as the API says.
const (
	maxHandle   = 4096
	maxCapacity = 256
	maxError    = 1024
	maxProblem  = 1024
)

// Since is from when on what is written in a directory is the pod's. What is older was left by another
// pod, and could be taken for what this one says.
type Since struct {
	// Time is when the pod began; zero: all is the pod's.
	Time time.Time
	// Shared is whether another pod has worked there before by rights: what that has left is then not
	// there for this one. Otherwise it is a problem.
	Shared bool
}

// Pod reads what a pod has left. An error means that it could not be read now.
func (r *Root) Pod(directory string, since Since) (moorv1alpha1.PodReport, error) {
	dir, err := r.open(directory)
	if errors.Is(err, fs.ErrNotExist) {
		err = problem("the directory %s is not there on the node: the pod has never begun, or it was removed by hand", r.Path(directory))
	}
	if err != nil {
		out := moorv1alpha1.PodReport{}
		err = note(&out, err)
		return out, err
	}
	defer dir.Close()
	return read(dir, since)
}

// Staged is Pod for a pod that stages, and says what is at /pav/volume.
func (r *Root) Staged(directory string, since Since) (moorv1alpha1.StagingReport, error) {
	pod, err := r.Pod(directory, since)
	out := moorv1alpha1.StagingReport{PodReport: pod}
	if err != nil || pod.Problem != "" {
		return out, err
	}
	v, err := r.Volume(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out, nil
	case err != nil:
		err = note(&out.PodReport, err)
		return out, err
	}
	defer v.Close()
	out.VolumeMode, out.SizeBytes = v.Mode, v.SizeBytes
	return out, nil
}

// Ready reports whether there is a file /pav/ready, of whatever kind.
func (r *Root) Ready(directory string) (bool, error) {
	dir, err := r.open(directory)
	if err == nil {
		defer dir.Close()
		err = look(dir, pods.FileReady, Since{})
	}
	if _, wrong := errors.AsType[Problem](err); wrong {
		return true, nil // Pod says what is wrong
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// read reads all files of a directory. What is wrong with one keeps no other from being read.
func read(dir *os.File, since Since) (moorv1alpha1.PodReport, error) {
	var out moorv1alpha1.PodReport
	ready := look(dir, pods.FileReady, since)
	out.Ready = ready == nil
	handle, wrongHandle := line(dir, pods.FileHandle, maxHandle, since)
	capacity, wrongCapacity := line(dir, pods.FileCapacity, maxCapacity, since)
	words, wrongError := content(dir, pods.FileError, maxError, since)
	out.Handle, out.Capacity = handle, capacity
	if wrongError == nil && !utf8.ValidString(words) {
		wrongError = aboutFile(pods.FileError, "is not valid UTF-8")
	}
	out.Error = cut(trim(strings.ToValidUTF8(words, string(utf8.RuneError))), maxError)
	for _, err := range []error{ready, wrongHandle, wrongCapacity, wrongError} {
		if err := note(&out, err); err != nil {
			return out, err
		}
	}
	return out, nil
}

// note adds a Problem to a report, and returns any other error but that a file is not there.
func note(to *moorv1alpha1.PodReport, err error) error {
	p, is := errors.AsType[Problem](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !is:
		return err
	case to.Problem != "":
		p.words = to.Problem + "; " + p.words
	}
	to.Problem = cut(p.words, maxProblem)
	return nil
}

// line is what a file holds that is taken as it is, nil if there is none.
func line(dir *os.File, name string, most int, since Since) (*string, error) {
	text, err := content(dir, name, most, since)
	if err != nil {
		return nil, err
	}
	if text, err = value(text, most); err != nil {
		return nil, aboutFile(name, err.Error())
	}
	return ptr.To(text), nil
}

// value is what a text says that is to have so many characters at most.
func value(text string, most int) (string, error) {
	text = trim(text)
	switch {
	case !utf8.ValidString(text):
		return "", problem("is not valid UTF-8")
	case utf8.RuneCountInString(text) > most:
		return "", problem("has more than %d characters", most)
	}
	return text, nil
}

// trim takes off the newline that echo adds, and no other.
func trim(text string) string { return strings.TrimSuffix(text, "\n") }

// cut is the beginning of a valid text.
func cut(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return text[:i]
		}
		n++
	}
	return text
}

// aboutFile is what is wrong with a file of /pav.
func aboutFile(name, words string) error { return problem("%s/%s %s", pods.MountPath, name, words) }

package results

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Schema is the version of the file's form. Files of version 1 held summaries
// without samples; they are not read.
const Schema = 2

// Sample is one run of a measurement.
type Sample struct {
	// Value is in the unit of the series.
	Value float64 `json:"value"`
	// At is when it was taken, Load the load average of the minute before.
	At   time.Time `json:"at"`
	Load float64   `json:"load"`
	// In is the invocation that took it, see File.Invocations.
	In string `json:"in"`
	// Failed says why the run failed; it has no value then.
	Failed string `json:"failed,omitempty"`
}

// Series is all samples of one measurement.
type Series struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Value is how the value that is held against the target follows from the
	// samples.
	Value   Kind     `json:"value"`
	Samples []Sample `json:"samples"`
}

// Invocation is one run of the program that measures.
type Invocation struct {
	// Commit is what the measured programs were built from, Dirty whether the
	// checkout had changes, of anything that is built, beside it.
	Commit string `json:"commit"`
	Dirty  bool   `json:"dirty"`
	// Machine is processors and kernel.
	Machine string `json:"machine"`
	// Settings of the bed; none for what needs no bed.
	Settings map[string]string `json:"settings,omitempty"`
	// FsyncMillis is the median of some fdatasyncs on the disk of etcd, before
	// the measurements.
	FsyncMillis float64 `json:"fsyncMillis,omitempty"`
}

// Name is the commit, with -dirty behind it if there were changes beside it.
func (i Invocation) Name() string {
	if i.Dirty {
		return i.Commit + "-dirty"
	}
	return i.Commit
}

// comparable reports whether samples of both may stand in one series: they are
// of the same code, known exactly, on the same machine and bed.
func (i Invocation) comparable(with Invocation) bool {
	return i.Commit == with.Commit && !i.Dirty && !with.Dirty && i.Machine == with.Machine && maps.Equal(i.Settings, with.Settings)
}

// File is all that was measured on one machine on one day.
type File struct {
	// Invocations by when they began.
	Invocations map[string]Invocation `json:"invocations"`
	Series      []Series              `json:"series"`
}

// Round keeps two digits: more than any of the measurements is good for.
func Round(x float64) float64 { return math.Round(x*100) / 100 }

// Merge adds fresh to old. Counts of what must never happen add up, whatever
// they are of. Other samples add up if they are of the same commit, machine and
// settings, and else replace the old ones.
func Merge(old, fresh File) File {
	out := File{Invocations: map[string]Invocation{}, Series: slices.Clone(old.Series)}
	maps.Copy(out.Invocations, old.Invocations)
	maps.Copy(out.Invocations, fresh.Invocations)
	for _, s := range fresh.Series {
		i := slices.IndexFunc(out.Series, func(o Series) bool { return o.Name == s.Name })
		switch {
		case i < 0:
			out.Series = append(out.Series, s)
		case s.Value == Sum || out.addUp(out.Series[i], s):
			out.Series[i].Samples = slices.Concat(out.Series[i].Samples, s.Samples)
		default:
			out.Series[i] = s
		}
	}
	out.prune()
	return out
}

// addUp reports whether all samples of both series are comparable.
func (f File) addUp(a, b Series) bool {
	all := slices.Concat(a.Samples, b.Samples)
	return a.Unit == b.Unit && a.Value == b.Value && !slices.ContainsFunc(all, func(s Sample) bool {
		return !f.Invocations[s.In].comparable(f.Invocations[all[0].In])
	})
}

// prune forgets invocations of which no sample is left.
func (f File) prune() {
	used := map[string]bool{}
	for _, s := range f.Series {
		for _, sample := range s.Samples {
			used[sample.In] = true
		}
	}
	maps.DeleteFunc(f.Invocations, func(in string, _ Invocation) bool { return !used[in] })
}

// Save adds what was measured to DIR/<date>-<name>.json and returns the path.
func Save(dir, name string, now time.Time, fresh File) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of results: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s.json", now.UTC().Format(time.DateOnly), name))
	old, err := Load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	all := Merge(old, fresh)
	all.Series = slices.DeleteFunc(all.Series, func(s Series) bool { return len(s.Samples) == 0 })
	text, err := encode(all)
	if err != nil {
		return "", fmt.Errorf("encode the results: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return "", fmt.Errorf("write the results: %w", err)
	}
	return path, nil
}

// ErrEdited says that a file is not as the program wrote it.
var ErrEdited = errors.New("its digest is not that of its samples: it was changed by hand, or damaged")

// Load reads a file of results. One that was edited is an error. The digest shows
// edits by hand; it is no signature, and can be forged.
func Load(path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read the results: %w", err)
	}
	f, err := decode(text)
	if err != nil {
		return File{}, fmt.Errorf("read the results of %s: %w", path, err)
	}
	return f, nil
}

func decode(text []byte) (File, error) {
	var stored struct {
		Schema int    `json:"schema"`
		Digest string `json:"digest"`
		File
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&stored); err != nil {
		return File{}, err
	}
	if stored.Schema != Schema {
		return File{}, fmt.Errorf("they are of schema %d, this program knows %d", stored.Schema, Schema)
	}
	want, err := stored.digest()
	if err != nil {
		return File{}, err
	}
	if stored.Digest != want {
		return File{}, ErrEdited
	}
	return stored.File, stored.check()
}

// check wants every sample to be of an invocation that is told of.
func (f File) check() error {
	for _, s := range f.Series {
		for _, sample := range s.Samples {
			if _, known := f.Invocations[sample.In]; !known {
				return fmt.Errorf("a sample of %s is of invocation %q, of which nothing is told", s.Name, sample.In)
			}
		}
	}
	return nil
}

// digest is a hash over invocations and samples, whatever blanks are between
// them.
func (f File) digest() (string, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// encode writes one sample a line, so that a difference between two versions of
// a file can be read.
func encode(f File) ([]byte, error) {
	digest, err := f.digest()
	if err != nil {
		return nil, err
	}
	invocations, err := json.MarshalIndent(f.Invocations, "  ", "  ")
	if err != nil {
		return nil, err
	}
	var series []string
	for _, s := range f.Series {
		samples := make([]string, len(s.Samples))
		for i, sample := range s.Samples {
			line, err := json.Marshal(sample)
			if err != nil {
				return nil, err
			}
			samples[i] = "      " + string(line)
		}
		head := fmt.Sprintf(`    {"name": %q, "unit": %q, "value": %q, "samples": [`, s.Name, s.Unit, s.Value)
		series = append(series, head+"\n"+strings.Join(samples, ",\n")+"\n    ]}")
	}
	return fmt.Appendf(nil, "{\n  \"schema\": %d,\n  \"digest\": %q,\n  \"invocations\": %s,\n  \"series\": [\n%s\n  ]\n}\n",
		Schema, digest, invocations, strings.Join(series, ",\n")), nil
}

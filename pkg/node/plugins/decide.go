package plugins

import (
	"os"
	"time"
)

// The pauses between checks of a plugin that fails them.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 15 * time.Second
)

// pause is how long to wait after that many failures in a row, from 1.
func pause(failures int) time.Duration {
	d := firstPause
	for range failures - 1 {
		if d *= 2; d >= lastPause {
			return lastPause
		}
	}
	return d
}

// claim is a plugin's word for its own name.
type claim struct {
	// dir is its directory, under which everybody else knows it.
	dir string
	// name is that of GetPluginInfo.
	name string
	// since is when its socket was made.
	since time.Time
}

// goesBefore: who came first has the name, whatever order they were checked in,
// so that a restart of this process changes nothing.
func (c claim) goesBefore(other claim) bool {
	if !c.since.Equal(other.since) {
		return c.since.Before(other.since)
	}
	return c.dir < other.dir
}

// refused returns, by directory, the plugins that may not be used since another
// one has the same name, and the directory of that. Plugins without a name
// share none.
func refused(all []claim) map[string]string {
	holder := map[string]claim{}
	for _, c := range all {
		if have, taken := holder[c.name]; c.name != "" && (!taken || c.goesBefore(have)) {
			holder[c.name] = c
		}
	}
	out := map[string]string{}
	for _, c := range all {
		if h := holder[c.name]; c.name != "" && h.dir != c.dir {
			out[c.dir] = h.dir
		}
	}
	return out
}

// sameSocket compares the time too: the number of a removed file is used again.
func sameSocket(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

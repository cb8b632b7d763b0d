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

// ownName is the name that a plugin gives itself.
type ownName struct {
	// dir is its directory, by which all others know it.
	dir string
	// name is that of GetPluginInfo.
	name string
	// since is when its socket was made.
	since time.Time
}

// before reports whether the plugin goes before another one of its name: the one
// whose socket is older has the name, no matter in which order they were checked,
// so that a restart of this process changes nothing.
func (n ownName) before(other ownName) bool {
	if !n.since.Equal(other.since) {
		return n.since.Before(other.since)
	}
	return n.dir < other.dir
}

// refused returns, by directory, the plugins that may not be used since another
// one has the same name, and the directory of that. Plugins without a name
// share none.
func refused(all []ownName) map[string]string {
	holder := map[string]ownName{}
	for _, n := range all {
		if have, taken := holder[n.name]; n.name != "" && (!taken || n.before(have)) {
			holder[n.name] = n
		}
	}
	out := map[string]string{}
	for _, n := range all {
		if h := holder[n.name]; n.name != "" && h.dir != n.dir {
			out[n.dir] = h.dir
		}
	}
	return out
}

// sameSocket compares the time too: the number of a removed file is used again.
func sameSocket(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

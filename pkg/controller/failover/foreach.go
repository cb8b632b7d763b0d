package failover

import "golang.org/x/sync/errgroup"

// limit bounds how much of one host is worked on at once: a host with many volumes
// should not take its time for each, nor all of the API server's.
const limit = 16

// forEach does something for all of them, several at once, and returns when the last
// is done. One that fails holds up no other; the error is of one that failed.
func forEach[T any](all []T, do func(T) error) error {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, one := range all {
		g.Go(func() error { return do(one) })
	}
	return g.Wait()
}

// atOnce does some things at the same time, as forEach does.
func atOnce(all ...func() error) error {
	return forEach(all, func(do func() error) error { return do() })
}

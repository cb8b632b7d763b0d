// Package listen ends listeners with contexts.
package listen

import (
	"context"
	"net"
)

// CloseWith closes a listener when ctx ends. What it returns closes it at once, if that
// has not happened, and returns when it is closed: Accept fails a moment before the
// socket is, and who listens on the address again in that moment is refused it
// (EADDRINUSE). Call it once, before the server says that it has ended.
func CloseWith(ctx context.Context, l net.Listener) (closed func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = l.Close()
	})
	return func() {
		if stop() {
			_ = l.Close()
			return
		}
		<-done
	}
}

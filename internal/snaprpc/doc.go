// Package snaprpc speaks JSON-RPC 2.0 to a SNAP service over its unix socket.
//
// It owns the wire: the shape of requests and answers, deadlines, and the
// difference between "the service said no" (*Error) and "it is not known what the
// service did" (ErrUnavailable). It decides nothing about devices.
//
// Every call has a connection of its own and one request in flight: SNAP's
// other clients drop unread bytes between calls, so a late answer to an earlier
// request can never be taken for the answer to this one.
package snaprpc

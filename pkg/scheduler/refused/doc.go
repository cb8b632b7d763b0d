// Package refused holds the pods for which a scheduler found no node, because
// nodes cannot serve their volumes, until one of these nodes can. Then they are
// due, and the scheduler is told.
//
// The scheduler could watch DPUStorageNodes and attachments itself, if a plugin
// named them in EventsToRegister. It would hold each whole, go through its queue at
// each heartbeat, and try a pod again by a watch of its own, possibly before the
// index has what the pod waits for. An extender cannot name any.
package refused

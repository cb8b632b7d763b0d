// Package cluster is an API server in memory for the simulation: objects with UIDs and
// resource versions, the status subresource, merge patches, finalizers, preconditions,
// and a log of every change, which views follow each at its own pace. Nothing in it is
// concurrent, and nothing reads a clock but by now: the same calls in the same order
// have the same effect.
package cluster

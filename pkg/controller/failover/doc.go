// Package failover takes a host that died out of service: it classifies what is
// heard of the host (classify.go), admits a failover (admit.go), takes the right to
// write back with a receipt (fence.go), releases the pods, and gives a host back
// that returned (release.go). What was begun stands in the WriterClaims, in the
// taint of the Node and in the condition Failover, never in memory.
//
// Its subpackages: detach ends the right to write in order, leases hears the
// kubelets and the process itself.
package failover

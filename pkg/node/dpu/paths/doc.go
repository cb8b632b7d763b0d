// Package paths watches the ways of this DPU's devices to their storage, and says
// which are lost.
//
// SNAP tells that a connection is there for as long as it has noticed nothing, so
// that alone is not believed: I/O that is in flight and does not end, and a question
// to the storage that is not answered, are signs of a loss too. A
// connection that was made anew is told by its name, which is another. The package asks SNAP
// and nothing else; it writes nothing, and takes nothing away from the host.
package paths

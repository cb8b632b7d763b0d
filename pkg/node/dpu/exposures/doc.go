// Package exposures owns what one DPU shows to its host: the SNAP services of
// the DPU, what all of them list, and how it is taken away.
//
// Truth is what the services list: nothing is remembered but which services were
// used, and which passes are under way. The reconciler, the patrol and the
// keeper of the lease work on one value of it. It never asks the API server or
// a vendor before it takes a device away, and decides nothing about the right to
// show one.
package exposures

// Package hostprobe tells a DPU whether the host that it sits in is alive, over
// a link that is not the cluster network.
//
// A Probe looks once and says what answered: the host's user space, its kernel
// alone, or nobody. A pure rule turns the looks into a verdict: a host is dead
// only after a time of silence and a number of looks that met it, and never
// before it was seen alive. Beat is the host's end of the probe over TCP.
//
// It sees, and acts on nothing: what a dead host means is for others to decide.
package hostprobe

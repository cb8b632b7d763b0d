// Package hostprobe tells a DPU whether the host that it sits in is alive, over
// a link that is not the cluster network.
//
// A Prober probes once and says what answered: the host's user space, its kernel
// alone, or nothing. A pure rule turns the probes into a verdict: a host is dead
// only after a time of silence and a number of probes that met it, and never
// before it was seen alive. I/O that it begins in the silence shows that it lives.
// Serve is the host's end of the probe over TCP, and Unprobed has a host that is not
// probed any more speak up.
//
// It observes and never acts: what a dead host means is for others to decide.
package hostprobe

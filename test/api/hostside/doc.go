// Package hostside tests hostsync and fence between two real API servers,
// where compare-and-swap, finalizers and watches are the real ones.
package hostside

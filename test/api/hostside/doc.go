// Package hostside tests hostcluster and failover between two real API servers,
// where compare-and-swap, finalizers and watches are the real ones.
package hostside

// Package world makes the clusters in which scale is measured: two API servers with
// Moor's CRDs and accounts, one host that the real programs have brought to rest, and
// copies of it by the thousand, written byte for byte into etcd under other names.
package world

// Package csiserver is the gRPC shell around every CSI-like service of Moor:
// the listening socket, request ids and logs, one call per volume at a time,
// deadlines, metrics, and the one file in which errors become gRPC codes.
//
// Handlers behind it return plain errors that wrap the sentinels of package
// provisioner; they never see a gRPC code. It decides nothing about volumes.
package csiserver

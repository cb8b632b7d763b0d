// Package vendorplugin speaks the gRPC API between the SNAP node driver and a
// storage vendor's plugin on the same DPU (proto package
// nvidia.storage.plugins.v1), from both ends: Server offers any platform's Host
// interface as a plugin, Client calls a plugin, of Moor or of a vendor.
//
// A server beside it on the same socket opens devices under epochs (proto package
// moor.storage.epoch.v1), for vendors that can.
//
// It owns the socket, the deadlines and the meeting of errors and gRPC codes
// (status.go). It decides nothing about devices.
package vendorplugin

// Package devices owns the calls of one DPU to its vendors' plugins: which plugin
// may be used, what all of them have made, and how a device is removed.
//
// A plugin that does not answer a call is checked again. The package shows
// nothing to the host and takes nothing away from it.
package devices

// Package functions is the half of an emulated DPU that outlives its SNAP service: the
// emulated functions, as hardware and firmware keep them. Server holds the devices that the
// host sees. While no service is there, or none has made a device its own again, what the
// host asks of the device waits, and is handed to the next service that adopts it; after the
// recovery time it fails, and the device goes, as the host's driver gives it up then.
//
// Path is the data path of a service over a Server: it attaches devices there, and serves
// their I/O. One that ends leaves them.
//
// Neither knows whether what waits may still be served. That is for the one who calls the service.
package functions

package daemon

// Version is set with -ldflags "-X .../internal/daemon.Version=v1.2.3".
var Version = "dev"

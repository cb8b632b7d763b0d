// Command etcd is the etcd server of the local test bed, built from its Go
// module because no binary release can be fetched there.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }

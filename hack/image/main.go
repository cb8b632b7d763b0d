// image makes the root directories of Moor's images, by the list deploy/image/images.yaml, as
// hack/images.sh says; and tries and measures those that it has made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	dir := flags.String("dir", "", "what hack/images.sh has made")
	arch := flags.String("arch", "amd64", "of the images: amd64 or arm64")
	page := flags.String("page", "", "page into which sizes are written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	list, err := ReadList(".")
	if err != nil {
		return err
	}
	switch verb := strings.Join(flags.Args(), " "); verb {
	case "packages":
		fmt.Println(strings.Join(list.Packages(), "\n"))
		return nil
	case "names":
		for _, i := range list.Images {
			fmt.Println(i.Name)
		}
		return nil
	case "make":
		system, err := OpenSystem(filepath.Join(*dir, "system"), *arch)
		if err != nil {
			return err
		}
		m := Maker{Dir: *dir, System: system}
		for _, i := range list.Images {
			if err := m.Make(i); err != nil {
				return err
			}
		}
		return nil
	case "try":
		return Try(ctx, list, Maker{Dir: *dir}, *arch)
	case "sizes":
		return Sizes(list, Maker{Dir: *dir}, *arch, *page)
	default:
		return errors.New("the verbs are packages, names, make, try and sizes, not " + verb)
	}
}

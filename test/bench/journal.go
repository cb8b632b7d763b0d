package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moor-storage/moor/pkg/node/dpu/journal"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// journalVolumes is how many volumes the journal knows that journal.write writes to.
const journalVolumes = 100

// journalWrite measures what a DPU waits for before it shows a volume: that the epoch is in
// its journal, on the disk where the machines of a bed are.
func (b *bench) journalWrite(context.Context) error {
	if err := os.MkdirAll(layout.DataDir, 0o755); err != nil {
		return fmt.Errorf("make the directory of a bed: %w", err)
	}
	dir, err := os.MkdirTemp(layout.DataDir, "journal-")
	if err != nil {
		return fmt.Errorf("make a directory for a journal: %w", err)
	}
	defer os.RemoveAll(dir)
	j, took := journal.Open(filepath.Join(dir, "journal")), b.series("journal.write", results.Millis, results.Median)
	for i := range journalVolumes + b.options.times(500) {
		volume := fmt.Sprintf("volume-%d", i%journalVolumes)
		begin := time.Now()
		if err := j.Show(types.UID(volume), volume, int64(1+i/journalVolumes)); err != nil {
			return fmt.Errorf("write a journal of %d volumes: %w", journalVolumes, err)
		}
		if i >= journalVolumes {
			took.add(millis(time.Since(begin)))
		}
	}
	return nil
}

package main

import (
	"context"

	"github.com/moor-storage/moor/test/bench/results"
)

// slots is how many functions can be plugged into a host by its DPU.
const slots = 31

// plugged is a volume for which a function is plugged in.
func plugged() wish {
	return wish{bytes: volumeBytes, parameters: map[string]string{"functionType": "pf", "hotplugFunction": "true"}}
}

// hotplugSingle attaches and detaches new volumes one at a time, each on a
// function that is plugged in for it and out again.
func (b *bench) hotplugSingle(ctx context.Context) error {
	volumes, err := b.create(ctx, warmups+b.options.times(60), plugged())
	if err != nil {
		return err
	}
	took := b.series("hotplug.attach", results.Millis, results.Median)
	for i, v := range volumes {
		in, _, err := b.attachDetach(ctx, v, b.turn(i))
		if err != nil {
			return err
		}
		if i >= warmups {
			took.add(millis(in))
		}
	}
	return nil
}

// hotplugParallel plugs in all the functions that a DPU can, at once. The first
// round is a warm-up.
func (b *bench) hotplugParallel(ctx context.Context) error {
	all := b.series("hotplug.parallel31", results.Millis, results.Worst)
	for round := range 1 + b.options.times(3) {
		_, end, err := b.attachCrowd(ctx, slots, plugged(), func(int) int { return 0 })
		if err != nil {
			return err
		}
		if round > 0 {
			all.add(end)
		}
	}
	return nil
}

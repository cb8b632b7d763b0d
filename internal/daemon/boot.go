package daemon

import (
	"fmt"
	"os"
	"strings"
)

// bootFile tells one boot of the machine from the others (random(4)).
const bootFile = "/proc/sys/kernel/random/boot_id"

// BootID is what this boot of the machine is called; it is never empty without an error.
func BootID() (string, error) {
	text, err := os.ReadFile(bootFile)
	if err != nil {
		return "", fmt.Errorf("find out which boot of the machine this is: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if id == "" {
		return "", fmt.Errorf("find out which boot of the machine this is: %s is empty", bootFile)
	}
	return id, nil
}

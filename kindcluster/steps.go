package kindcluster

import (
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/kind/pkg/log"
)

// steps tells what kind is at while it makes a cluster, each step with how long the one before it took. It implements log.Logger.
type steps struct {
	say   func(line string)
	began time.Time
	last  string
}

// beginsStep is how kind, without a terminal, says that it begins a step; the end of it says ✓.
const beginsStep = "•"

// Info implements log.InfoLogger.
func (s *steps) Info(message string) {
	step, begins := strings.CutPrefix(strings.TrimSpace(message), beginsStep)
	if !begins {
		return
	}
	if s.last != "" {
		s.say(fmt.Sprintf("kind: %s: %s", s.last, time.Since(s.began).Round(time.Second)))
	}
	s.began = time.Now()
	// Its pictures are for terminals.
	s.last = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r > 0x2000 {
			return -1
		}
		return r
	}, strings.TrimSuffix(strings.TrimSpace(step), "...")))
}

// Warn implements log.Logger. That the lab names the network is the lab's doing, and no news.
func (s *steps) Warn(message string) {
	if strings.Contains(message, "network due to KIND_EXPERIMENTAL_") || strings.Contains(message, "Here be dragons!") {
		return
	}
	s.say("kind: " + strings.TrimSpace(message))
}

func (s *steps) Infof(format string, args ...any)  { s.Info(fmt.Sprintf(format, args...)) }
func (s *steps) Enabled() bool                     { return true }
func (s *steps) Warnf(format string, args ...any)  { s.Warn(fmt.Sprintf(format, args...)) }
func (s *steps) Error(message string)              { s.Warn(message) }
func (s *steps) Errorf(format string, args ...any) { s.Warn(fmt.Sprintf(format, args...)) }

// V implements log.Logger.
func (s *steps) V(level log.Level) log.InfoLogger {
	if level > 0 {
		return log.NoopInfoLogger{}
	}
	return s
}

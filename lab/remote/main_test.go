package remote

import (
	"testing"

	"kplab/lab/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

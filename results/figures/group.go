package figures

// Group is the runs of one benchmark in one unit and one setting.
type Group struct {
	Name   string            // with its keys: "Sync/event=first/services=1000/mode=nftables"
	Config map[string]string // the configuration lines of the first run
	Unit   string
	Values []float64 // in the order of the runs
}

// Groups sorts the set's lines into groups, in the order in which they begin.
func (s *Set) Groups() (all []Group) {
	type key struct{ name, unit, setting, proxy string }
	at := map[key]int{}
	for _, l := range s.Lines {
		for _, v := range l.Values {
			k := key{l.Name(), v.Unit, l.Setting().String(), l.Config[KubeProxyKey]}
			i, ok := at[k]
			if !ok {
				i = len(all)
				at[k] = i
				all = append(all, Group{Name: k.name, Config: l.Config, Unit: v.Unit})
			}
			all[i].Values = append(all[i].Values, v.Value)
		}
	}
	return all
}

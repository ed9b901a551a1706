use radrm_scheduler_core::replay::*;
use radrm_scheduler_core::replay::read::*;
use radrm_scheduler_core::*;
fn main() {
    let f = Filling::default();
    let tr = read(&std::fs::read_to_string("/work/shared/data/traces/thesis_60.csv").unwrap(), &f).unwrap();
    let cl = Cluster::uniform(4, "A100-40GB", Bytes::from_mib(40960-424));
    let o = Options{settings: Settings::published(Policy::RoundRobin), source: Source::Unknown, bars:true, ..Options::default()};
    let r = replay(&tr,&cl,&o,&mut ());
    let mut b=r.bars.clone(); b.sort_by_key(|b|(b.from,b.job));
    for x in b { println!("{:6} {:6} job {:2} gpu {} peak {} {}", x.from.0/1000, x.to.0/1000, x.job+1, x.device, tr[x.job as usize].peak.mib(), if x.failed {"OOM"} else {""}); }
}

use radrm_scheduler_core::replay::*;
use radrm_scheduler_core::replay::read::*;
use radrm_scheduler_core::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let prof = Profiles::read(&std::fs::read_to_string("/work/shared/data/workloads_a100/workloads.csv").unwrap()).unwrap();
    for t in ["60","90"] {
    let f = Filling { profiles: prof.clone(), ..Filling::default() };
    let tr = read(&std::fs::read_to_string(format!("/work/shared/data/traces/thesis_{t}.csv")).unwrap(), &f).unwrap();
    let cl = Cluster::uniform(4, "A100-40GB", Bytes::from_mib(40960-424));
    let b = bounds(&tr, 4, 1.0, Settings::default().assumed);
    println!("thesis {t}: bound makespan {:.2} h jct {:.2} h", b.makespan_s/3600., b.jct_mean_s/3600.);
    let run = |name: &str, s: Settings, source: Source, mode: Mode, k: Knowledge| {
        let ms: Vec<Metrics> = (0..9).map(|seed| {
            let o = Options{settings: s.clone(), model: Model{mode, ..Model::default()}, source: source.clone(), knowledge: k, seed: if seed==0 {None} else {Some(seed)}, bars:false};
            replay(&tr,&cl,&o,&mut ()).metrics() }).collect();
        let i=|f: fn(&Metrics)->f64| { let v: Vec<f64>=ms.iter().map(f).collect(); Interval::of(&v).mean };
        println!("{name:32} mk {:5.2} h  jct {:5.2} h p95 {:5.2} wait {:5.2} exec {:5.2} oom {:4.1} fail {:3.1} smact {:.2} E {:5.2} MJ", i(|m|m.makespan_s)/3600., i(|m|m.jct_mean_s)/3600., i(|m|m.jct_p95_s)/3600., i(|m|m.wait_mean_s)/3600., i(|m|m.exec_mean_s)/3600., i(|m|m.ooms), i(|m|m.failed), i(|m|m.smact), i(|m|m.energy_mj));
    };
    use Policy as P;
    if a.len()<2 {
    run("exclusive", Settings::published(P::Exclusive), Source::Measured, Mode::Mps, Knowledge::All);
    run("rr streams", Settings::published(P::RoundRobin), Source::Unknown, Mode::Streams, Knowledge::All);
    run("rr mps", Settings::published(P::RoundRobin), Source::Unknown, Mode::Mps, Knowledge::All);
    let mut s=Settings::published(P::Magm); s.preconditions.smact=None; s.preconditions.min_free=Bytes::ZERO;
    run("magm no cond", s.clone(), Source::Unknown, Mode::Mps, Knowledge::All);
    let mut s=Settings::published(P::Magm); s.preconditions.min_free=Bytes::ZERO;
    run("magm 80", s.clone(), Source::Unknown, Mode::Mps, Knowledge::All);
    s.preconditions.min_free=Bytes::from_gib(2);
    run("magm 80 2GB", s.clone(), Source::Unknown, Mode::Mps, Knowledge::All);
    s.preconditions.min_free=Bytes::from_gib(5); s.preconditions.smact=Some(Permille(750));
    run("magm 75 5GB", s.clone(), Source::Unknown, Mode::Mps, Knowledge::All);
    run("lug 80 5GB", Settings::published(P::Lug), Source::Unknown, Mode::Mps, Knowledge::All);
    for e in ["horus","faketensor","gpumemnet"] { run(&format!("magm 80 {e}"), Settings::published(P::Magm), Source::Column(e.into()), Mode::Mps, Knowledge::All);}
    }
    for p in [P::Magm,P::Lug,P::Mug,P::FirstFit,P::BestFit,P::WorstFit,P::RoundRobin] { let mut s=Settings::published(p); s.memory=Memory::Observed; s.preconditions.smact=Some(Permille(800)); run(&format!("oracle {p}"), s, Source::Measured, Mode::Mps, Knowledge::All);}
    for g in [150,200] { for sh in [1500,3000] { let mut s=Settings::default(); s.min_gain=Permille(g); s.order.shortest=sh; run(&format!("aware gain {g} sh {sh}"), s, Source::Measured, Mode::Mps, Knowledge::All);}}
    run("aware learned", Settings::default(), Source::Measured, Mode::Mps, Knowledge::Learned);
    run("aware nothing", Settings::default(), Source::Measured, Mode::Mps, Knowledge::Nothing);
    run("aware unknown need", Settings::default(), Source::Unknown, Mode::Mps, Knowledge::Nothing);
    run("aware history", Settings::default(), Source::History, Mode::Mps, Knowledge::Learned);
    }
}

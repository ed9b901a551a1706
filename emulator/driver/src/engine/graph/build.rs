//! Graphs and their nodes: building, asking, cloning.

use std::collections::{BTreeSet, HashMap};

use radrm_cuda_abi::*;

use crate::engine::graph::node::{Edge, EdgeData, NodeKind};
use crate::engine::graph::state::{Graph, Graphs, Node};
use crate::engine::memory::state::Memory;
use crate::util::ffi::Answer;

impl Graphs {
    /// Makes an empty graph.
    pub fn create(&mut self) -> u64 {
        let handle = self.handles.next();
        let id = self.next_id();
        self.graphs.insert(handle, Graph { id, ..Graph::default() });
        handle
    }

    /// A number for a graph or executable graph.
    pub fn next_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// A graph by handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn graph(&self, handle: u64) -> Answer<&Graph> {
        self.graphs.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A node by handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn node(&self, handle: u64) -> Answer<&Node> {
        self.nodes.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A node by handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn node_mut(&mut self, handle: u64) -> Answer<&mut Node> {
        self.nodes.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The graph that a node is in.
    pub fn graph_of(&self, node: u64) -> Option<u64> {
        self.nodes.get(&node).map(|n| n.graph)
    }

    /// Adds a node behind others of the same graph.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if one of those is in another graph or named twice.
    pub fn add(&mut self, graph: u64, before: &[Edge], kind: NodeKind) -> Answer<u64> {
        self.graph(graph)?;
        for (index, edge) in before.iter().enumerate() {
            let twice = before[..index].iter().any(|e| e == edge);
            if twice || self.graph_of(edge.from) != Some(graph) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        let handle = self.handles.next();
        if let NodeKind::Alloc { address, .. } = &kind
            && let Some(allocation) = self.allocations.get_mut(address)
        {
            allocation.holders += 1;
        }
        for inner in kind.graphs() {
            if let Some(inner) = self.graphs.get_mut(inner) {
                inner.parent = Some(handle);
            }
        }
        let place = self.graphs.get_mut(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        place.nodes.push(handle);
        place.next_local += 1;
        let local_id = place.next_local;
        self.nodes.insert(handle, Node { graph, local_id, kind, before: before.to_vec(), original: None });
        Ok(handle)
    }

    /// Copies a graph with everything in it; gives the copy.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED if it allocates, frees or has conditional nodes.
    pub fn clone_graph(&mut self, source: u64) -> Answer<u64> {
        if self.has(source, NodeKind::is_single) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let nodes = self.graph(source)?.nodes.clone();
        let objects = self.graph(source)?.objects.clone();
        let copy = self.create();
        let mut new_of: HashMap<u64, u64> = HashMap::new();
        for old in nodes {
            let node = self.node(old)?.clone();
            let kind = match node.kind {
                NodeKind::Child(child) => NodeKind::Child(self.clone_graph(child)?),
                other => other,
            };
            // Edges may lead forward, so they are added when all nodes are there.
            let new = self.add(copy, &[], kind)?;
            self.node_mut(new)?.original = Some(old);
            new_of.insert(old, new);
        }
        for (old, new) in &new_of {
            let before = self.node(*old)?.before.clone();
            let mapped =
                before.iter().filter_map(|e| Some(Edge { from: *new_of.get(&e.from)?, data: e.data }));
            let mapped: Vec<Edge> = mapped.collect();
            self.node_mut(*new)?.before = mapped;
        }
        for (object, count) in &objects {
            self.objects.retain(*object, *count);
        }
        let place = self.graphs.get_mut(&copy).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        place.objects = objects;
        place.original = Some(source);
        Ok(copy)
    }

    /// Returns true if a graph, or one inside of it, has a node of the kind that `is_it` accepts.
    pub fn has(&self, graph: u64, is_it: fn(&NodeKind) -> bool) -> bool {
        let Some(graph) = self.graphs.get(&graph) else { return false };
        let mut nodes = graph.nodes.iter().filter_map(|n| self.nodes.get(n));
        nodes.any(|node| is_it(&node.kind) || node.kind.graphs().iter().any(|inner| self.has(*inner, is_it)))
    }

    /// Returns true if a graph, or one inside of it, allocates or frees.
    fn has_memory_nodes(&self, graph: u64) -> bool {
        self.has(graph, NodeKind::is_memory)
    }

    /// Returns true if a graph is `outer`, or inside of it.
    pub fn is_within(&self, graph: u64, outer: u64) -> bool {
        let above = |graph: &u64| self.graph_of(self.graphs.get(graph)?.parent?);
        std::iter::successors(Some(graph), above).any(|graph| graph == outer)
    }

    /// Takes a graph away with its nodes and children.
    pub fn destroy(&mut self, memory: &Memory, graph: u64) {
        let Some(gone) = self.graphs.remove(&graph) else { return };
        for node in gone.nodes {
            self.forget_node(memory, node);
        }
        for (object, count) in gone.objects {
            self.objects.release(object, count);
        }
        self.conditions.retain(|_, condition| condition.graph != graph);
    }

    fn forget_node(&mut self, memory: &Memory, handle: u64) {
        let Some(node) = self.nodes.remove(&handle) else { return };
        for inner in node.kind.graphs() {
            self.destroy(memory, *inner);
        }
        if let NodeKind::Alloc { address, .. } = node.kind {
            self.let_go(memory, address);
        }
    }

    /// Takes a node and its edges out of its graph.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED if the graph allocates or frees: it keeps all nodes.
    pub fn destroy_node(&mut self, memory: &Memory, handle: u64) -> Answer {
        let graph = self.node(handle)?.graph;
        if self.has_memory_nodes(graph) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.nodes.retain(|n| *n != handle);
            for other in graph.nodes.clone() {
                if let Some(other) = self.nodes.get_mut(&other) {
                    other.before.retain(|e| e.from != handle);
                }
            }
        }
        self.forget_node(memory, handle);
        Ok(())
    }

    /// Nodes that come directly after a node, with the data of the edges.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn after(&self, handle: u64) -> Answer<Vec<(u64, EdgeData)>> {
        let graph = self.graph(self.node(handle)?.graph)?;
        let mut found = Vec::new();
        for other in &graph.nodes {
            let edges = self.node(*other)?.before.iter().filter(|e| e.from == handle);
            found.extend(edges.map(|e| (*other, e.data)));
        }
        Ok(found)
    }

    /// All edges of a graph: from, to, data.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn edges(&self, graph: u64) -> Answer<Vec<(u64, u64, EdgeData)>> {
        let mut found = Vec::new();
        for node in &self.graph(graph)?.nodes {
            found.extend(self.node(*node)?.before.iter().map(|e| (e.from, *node, e.data)));
        }
        Ok(found)
    }

    /// Adds edges.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if an end is not in the graph, an edge is there already or would close
    /// a circle.
    pub fn connect(&mut self, graph: u64, edges: &[(u64, u64, EdgeData)]) -> Answer {
        for (from, to, data) in edges {
            if self.graph_of(*from) != Some(graph) || self.graph_of(*to) != Some(graph) || from == to {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if self.node(*to)?.before.iter().any(|e| e.from == *from && e.data == *data)
                || self.ancestors(graph, &[*from]).contains(to)
            {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            self.node_mut(*to)?.before.push(Edge { from: *from, data: *data });
        }
        Ok(())
    }

    /// Takes edges away.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if one is not there; CUDA_ERROR_NOT_SUPPORTED if the graph allocates or frees.
    pub fn disconnect(&mut self, graph: u64, edges: &[(u64, u64, EdgeData)]) -> Answer {
        if self.has_memory_nodes(graph) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        for (from, to, data) in edges {
            if self.graph_of(*to) != Some(graph) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let before = &mut self.node_mut(*to)?.before;
            let at = before.iter().position(|e| e.from == *from && e.data == *data);
            before.remove(at.ok_or(CUDA_ERROR_INVALID_VALUE)?);
        }
        Ok(())
    }

    /// The nodes themselves and all that come before them.
    pub fn ancestors(&self, graph: u64, nodes: &[u64]) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut open: Vec<u64> = nodes.iter().copied().filter(|n| self.graph_of(*n) == Some(graph)).collect();
        while let Some(node) = open.pop() {
            if found.insert(node)
                && let Some(node) = self.nodes.get(&node)
            {
                open.extend(node.before.iter().map(|e| e.from));
            }
        }
        found
    }

    /// Nodes of a graph so that each comes after all that it depends on; of several that could come
    /// next the one that was made first.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn ordered(&self, graph: u64) -> Answer<Vec<u64>> {
        let nodes = &self.graph(graph)?.nodes;
        let place: HashMap<u64, usize> = nodes.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let mut missing: Vec<usize> = Vec::with_capacity(nodes.len());
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            let before = &self.node(*node)?.before;
            missing.push(before.len());
            for edge in before {
                after[*place.get(&edge.from).ok_or(CUDA_ERROR_INVALID_VALUE)?].push(index);
            }
        }
        let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|i| missing[*i] == 0).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(index) = ready.pop_first() {
            order.push(nodes[index]);
            for next in &after[index] {
                missing[*next] -= 1;
                if missing[*next] == 0 {
                    ready.insert(*next);
                }
            }
        }
        if order.len() == nodes.len() { Ok(order) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        Memory::new(&[], false)
    }

    fn plain(nodes: &[u64]) -> Vec<Edge> {
        nodes.iter().map(|n| Edge::plain(*n)).collect()
    }

    #[test]
    fn nodes_are_ordered_by_their_dependencies() {
        let mut graphs = Graphs::default();
        let g = graphs.create();
        let a = graphs.add(g, &[], NodeKind::Empty).unwrap();
        let b = graphs.add(g, &plain(&[a]), NodeKind::Empty).unwrap();
        let c = graphs.add(g, &[], NodeKind::Empty).unwrap();
        graphs.connect(g, &[(c, a, EdgeData::default())]).unwrap();
        assert_eq!(graphs.ordered(g).unwrap(), [c, a, b]);
        assert_eq!(
            graphs.connect(g, &[(b, c, EdgeData::default())]),
            Err(CUDA_ERROR_INVALID_VALUE),
            "a circle"
        );
        graphs.disconnect(g, &[(c, a, EdgeData::default())]).unwrap();
        assert_eq!(graphs.ordered(g).unwrap(), [a, b, c]);
        assert_eq!(graphs.after(a).unwrap(), [(b, EdgeData::default())]);
        graphs.destroy_node(&memory(), a).unwrap();
        assert!(graphs.node(b).unwrap().before.is_empty());
    }

    #[test]
    fn a_clone_has_the_same_shape_and_lives_on_its_own() {
        let mut graphs = Graphs::default();
        let (g, inner) = (graphs.create(), graphs.create());
        graphs.add(inner, &[], NodeKind::Empty).unwrap();
        let a = graphs.add(g, &[], NodeKind::Child(inner)).unwrap();
        graphs.add(g, &plain(&[a]), NodeKind::Empty).unwrap();
        let copy = graphs.clone_graph(g).unwrap();
        graphs.destroy(&memory(), g);
        assert!(graphs.graph(inner).is_err(), "children go with their parent");
        let nodes = graphs.ordered(copy).unwrap();
        assert_eq!(graphs.node(nodes[0]).unwrap().original, Some(a));
        assert_eq!(graphs.node(nodes[1]).unwrap().before, plain(&nodes[..1]));
        graphs.destroy(&memory(), copy);
        assert!(graphs.nodes.is_empty() && graphs.graphs.is_empty());
    }

    #[test]
    fn dependencies_must_be_in_the_same_graph() {
        let mut graphs = Graphs::default();
        let (g, other) = (graphs.create(), graphs.create());
        let outside = graphs.add(other, &[], NodeKind::Empty).unwrap();
        assert_eq!(graphs.add(g, &plain(&[outside]), NodeKind::Empty), Err(CUDA_ERROR_INVALID_VALUE));
        let a = graphs.add(g, &[], NodeKind::Empty).unwrap();
        assert_eq!(graphs.add(g, &plain(&[a, a]), NodeKind::Empty), Err(CUDA_ERROR_INVALID_VALUE));
    }
}

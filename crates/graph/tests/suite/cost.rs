use orlop_graph::{DType, Graph, GraphBuilder, TensorId, Window};

/// Operations of a graph's only node.
fn operations(build: impl FnOnce(&mut GraphBuilder) -> TensorId) -> f64 {
    let mut b = GraphBuilder::new();
    let result = build(&mut b);
    b.output(result);
    let graph: Graph = b.build().unwrap();
    graph.operations(graph.node_ids().next().unwrap())
}

/// Pairs of an element of the data and one of the kernel that are multiplied: twice their number are operations.
fn pairs(data: u64, kernel: u64, stride: u64) -> u64 {
    (0..).map(|start| start * stride).take_while(|start| start + kernel <= data).count() as u64 * kernel
}

#[test]
fn convolutions_cost_a_multiplication_and_an_addition_for_each_pair() {
    let window = Window { stride: [2, 3], ..Window::default() };
    let f32 = DType::F32;
    let found = [
        operations(|b| {
            let (kernel, data) = (b.input("w", f32, &[3, 4, 5]), b.input("x", f32, &[11, 4, 2]));
            b.conv_1d(kernel, data, window)
        }),
        operations(|b| {
            let (kernel, data) = (b.input("w", f32, &[3, 2, 4, 5]), b.input("x", f32, &[11, 8, 4, 2]));
            b.conv_2d(kernel, data, window)
        }),
        operations(|b| {
            let (kernel, data) = (b.input("w", f32, &[3, 2, 1, 5]), b.input("x", f32, &[11, 8, 5, 2]));
            b.conv_depthwise_2d(kernel, data, window)
        }),
    ];
    let (wide, high) = (pairs(11, 3, 2), pairs(8, 2, 3));
    assert_eq!(
        found.map(|operations| operations as u64),
        [2 * wide * 4 * 5 * 2, 2 * wide * high * 4 * 5 * 2, 2 * wide * high * 5 * 2]
    );
}

#[test]
fn transposed_convolutions_spread_each_element_once_whatever_the_stride() {
    let f32 = DType::F32;
    for stride in [1, 4] {
        let one = operations(|b| {
            let (kernel, data) = (b.input("w", f32, &[3, 5, 4]), b.input("x", f32, &[11, 4]));
            b.conv_transpose_1d(kernel, data, stride)
        });
        let two = operations(|b| {
            let (kernel, data) = (b.input("w", f32, &[3, 2, 5, 4]), b.input("x", f32, &[11, 8, 4, 2]));
            b.conv_transpose_2d(kernel, data, stride)
        });
        assert_eq!((one, two), (2.0 * 3.0 * 5.0 * 4.0 * 11.0, 2.0 * 6.0 * 5.0 * 4.0 * 88.0 * 2.0));
    }
}

"""Classify the nodes of a graph: how sure each is, what to review, what is new, and which neighbours are alike."""

import numpy as np
import torch
from torch_geometric.nn import GATConv

from paperworks import dssgnn

# A graph of four classes, of which features tell little and edges more. Your own: a PyG Data with masks, or tables, e.g.
# dssgnn.graph_from_tables(nodes, edges, id="account", label="fraud").data
data = dssgnn.contextual_sbm(400, 4, homophily=0.7, degree=4.0, signal=1.0, seed=0)
test, truth = data.test_mask.numpy(), data.y.numpy()

model = dssgnn.DSSClassifier(epochs=100, random_state=0).fit(data)
gcn = dssgnn.GCNClassifier(epochs=100, random_state=0).fit(data)
print(f"filter chosen by the validation nodes: {model.filter_}")
for name, proba in (("one DSS network", model.predict_proba(data)), ("softmax of a GCN", gcn.predict_proba(data))):
    right = np.mean(proba[test].argmax(1) == truth[test])
    brier, ece = dssgnn.brier(proba[test], truth[test]), dssgnn.ece(proba[test], truth[test])
    print(f"{name}: {right:.1%} right, Brier {brier:.3f}, calibration error {ece:.3f}")

# Whom to review: the nodes whose class is least certain, and how much of that is doubt about the logits.
table = model.uncertainty(data)[test].sort_values("total", ascending=False)
print(f"\nto review first:\n{table.head(3).round(3)}")
wrong = model.predict(data)[table.index] != truth[table.index]
print(f"wrong: {wrong[:60].mean():.0%} of the 60 least certain, {wrong[-60:].mean():.0%} of the 60 most certain")

# What is new: class 3 was never seen with a label.
known = dssgnn.leave_out_classes(data, 3)
novel, seen = known.ood_mask.numpy(), known.test_mask.numpy()
energy = dssgnn.DSSClassifier(epochs=60, random_state=0).fit(known).ood_score(known, propagate=(2, 0.5))
found = dssgnn.ood_metrics(energy[seen], energy[novel])
print(f"\nnodes of a class that is new: AUROC of the energy {found.auroc:.2f}")

# Neighbours: P(both have one label), and the whole joint table of a pair.
joint = model.joint_proba(data, data.edge_index)
agree = np.trace(joint, axis1=1, axis2=2)
same = truth[data.edge_index[0]] == truth[data.edge_index[1]]
print(f"\nedges within a class: {same.mean():.1%}, expected {agree.mean():.1%}")
print(f"nodes {tuple(data.edge_index[:, 0].tolist())}:\n{joint[0].round(3)}")


# Your own encoder, unmodified, with the network as a residual beside it.
class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GATConv(16, 8, heads=4, dropout=0.5), GATConv(32, 4, dropout=0.5)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


hybrid = dssgnn.DSSClassifier(encoder=Attention(), filter="ppr", epochs=60, random_state=0).fit(data)
brier = dssgnn.brier(hybrid.predict_proba(data)[test], truth[test])
print(f"\naround a GAT: {hybrid.score(data):.1%} right, Brier {brier:.3f}")

model.save("classifier")
again = dssgnn.DSSClassifier.load("classifier")
print(f"saved and loaded, the same: {np.array_equal(again.predict_proba(data), model.predict_proba(data))}")

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.backends.cudnn.benchmark = True

    def forward(self, predictions, targets):
        return torch.nn.functional.mse_loss(predictions, targets)
